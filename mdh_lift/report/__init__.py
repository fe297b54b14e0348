"""The report: ``data`` collects it as one JSON value, ``page`` makes a self-contained HTML page of it."""
