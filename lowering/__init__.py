"""From high-level programs to low-level ones: system models, tuning parameters, loop structures."""
