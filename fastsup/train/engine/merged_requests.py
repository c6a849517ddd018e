"""Merges the feeds and the RunOptions that hooks request for one run."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any


def merge_feeds(feeds: MutableMapping[Any, Any], more: Mapping[Any, Any], message: str) -> None:
    """Adds feeds to a dictionary of feeds.

    Args:
      feeds: the feeds so far, changed in place.
      more: the feeds to add.
      message: first sentence of the error.

    Raises:
      RuntimeError: a tensor is in both.
    """
    conflicts = feeds.keys() & more.keys()
    if conflicts:
        raise RuntimeError(f"{message} Conflict(s): {list(conflicts)}")
    feeds.update(more)


def merge_run_options(options: Any, more: Any) -> None:
    """Merges RunOptions: takes the larger of two numbers, true of two booleans, and both lists.

    Args:
      options: the RunOptions so far, changed in place.
      more: the RunOptions to merge.
    """
    for name in ("trace_level", "timeout_in_ms", "inter_op_thread_pool"):
        setattr(options, name, max(getattr(options, name), getattr(more, name)))
    for name in ("output_partition_graphs", "report_tensor_allocations_upon_oom"):
        setattr(options, name, getattr(options, name) or getattr(more, name))
    debug, more_debug = options.debug_options, more.debug_options
    debug.debug_tensor_watch_opts.extend(more_debug.debug_tensor_watch_opts)
    debug.reset_disk_byte_usage = debug.reset_disk_byte_usage or more_debug.reset_disk_byte_usage
