"""The standard session-run hooks, their base classes, and the hook that adapts a hook of step loops."""
