"""Long-running checks of the whole tool: random nests, code from the wild."""
