"""Batch runs: many inputs on local processes or on Ray, resumable after any kind of stop."""
