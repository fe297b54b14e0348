"""Checks that steps and schedules mean what the loop nest means, by code that neither lifts nor lowers."""
