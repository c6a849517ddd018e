"""Orbax: `CheckpointManager` with arrays of JAX."""

import jax.numpy as jnp
import numpy
import orbax.checkpoint as ocp
from job import EVERY, SIZE


def manager(job):
    """Saves every five steps in the background, and waits for each save with `wait_until_finished`."""
    options = ocp.CheckpointManagerOptions(max_to_keep=1, save_interval_steps=EVERY)
    state = {"step": jnp.zeros((), jnp.int32), "weights": jnp.zeros(SIZE)}
    with ocp.CheckpointManager(job.folder, options=options) as saves:
        newest = saves.latest_step()
        if newest is not None:
            state = saves.restore(newest, args=ocp.args.StandardRestore(state))
        job.started(state["step"], numpy.asarray(state["weights"]))
        while state["step"] < job.last:
            state = {"step": state["step"] + 1, "weights": state["weights"] + 1}
            number = int(state["step"])
            if saves.save(number, args=ocp.args.StandardSave(state)):
                saves.wait_until_finished()
                job.returned(number)
            job.rested()


PROGRAMS = {"orbax": manager}
