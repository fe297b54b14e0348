"""The one place where the version stands; ``pyproject.toml`` reads it from here."""

VERSION = "0.1.0"
