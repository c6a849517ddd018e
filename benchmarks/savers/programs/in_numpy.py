"""Steps of NumPy, with our checkpoints without TensorFlow."""

import numpy
from job import EVERY, SIZE

from fastsup.loop import Checkpoints, StepLoop, StopAtStepHook


def checkpoints(job):
    """`StepLoop` with a `Checkpoints`."""
    weights = numpy.zeros(SIZE, "float32")
    saver = Checkpoints(job.folder, {"weights": weights}, every_steps=EVERY, keep=1)

    def step():
        # The hooks of the step before have returned.
        number = loop.global_step
        job.started(number, weights)
        if number % EVERY == 0:
            job.returned(number)
        job.rested()
        weights[...] += 1

    loop = StepLoop(step, [saver, StopAtStepHook(last_step=job.last)], resume_from=saver)
    loop.run()
    job.returned(job.last)


PROGRAMS = {"fastsup_checkpoints": checkpoints}
