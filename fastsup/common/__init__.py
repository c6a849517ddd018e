"""What sessions, loops and monitored functions share: signals, back-off, kinds of errors, files, progress lines."""
