"""The Python front end: functions over NumPy arrays -> ``LoopNest``."""
