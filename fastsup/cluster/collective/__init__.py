"""The tasks of a collective job: their communication, and the detection of a lost task."""
