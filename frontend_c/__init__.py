"""The C frontend: from the bytes of a C file to loop nests as plain data."""
