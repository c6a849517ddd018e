"""Monitors: what training called before there were hooks."""
