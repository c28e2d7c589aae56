"""Memory policies beyond the rule of SAM 2, one file each; `table.py` has them by name."""
