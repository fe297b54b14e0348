"""From loop nests to multi-dimensional homomorphisms: analysis, operators, and why not."""
