"""What the numbers of a report say about the program: what to change, and what that saves."""
