from fastsup.core.hook cimport FS_GO_ON, FS_STOP, LoopHook, fs_hook_fn, fs_loop, fs_schedule, fs_step_fn
from fastsup.core.loop cimport Loop
from fastsup.core.schedule cimport Scheduled
