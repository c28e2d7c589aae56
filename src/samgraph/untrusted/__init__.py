"""What comes from outside: file names, files and JSON, read within limits and shown escaped."""
