"""Long work that survives: journal, resume, limits."""
