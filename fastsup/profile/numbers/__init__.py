"""The numbers of a report, and how they are written."""
