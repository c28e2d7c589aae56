"""The library's module `ultralytics.models`, as far as SAM 2 is in it."""
