"""The tasks of a job of collectives: what each tells the others, and how the loss of one is found."""
