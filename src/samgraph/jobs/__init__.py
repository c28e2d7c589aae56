"""Long-running work: journal, resume, limits, interruption; used by the command line and others."""
