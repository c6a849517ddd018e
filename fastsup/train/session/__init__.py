"""The sessions that training runs in, from the session creators to the loop."""
