"""Cases on a GPU: against its limits, cuBLAS, PyTorch and Triton kernels (``python -m benchmarks.gpu``).

``cases`` and ``prepare`` need mdh-lift; ``build``, ``run``, ``table`` and ``peers`` need Python's standard
library, nvcc, and what each peer is made of.  So a folder that ``--prepare`` has written can be measured
elsewhere.
"""
