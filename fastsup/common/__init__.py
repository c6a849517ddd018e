"""Parts that sessions, loops and lifted functions share: signals, errors, files, scripts, versions, progress."""
