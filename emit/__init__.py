"""Low-level programs as text: OpenMP C that a person would like to own."""
