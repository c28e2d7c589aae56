"""How good masks are: J and F, simulated clicks, mean IoU."""
