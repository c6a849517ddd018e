"""horovod's BroadcastGlobalVariablesHook, from its Python source: its C++ parts aren't compiled here.

The environment variable HOROVOD_SOURCE names the file horovod/tensorflow/__init__.py of a source distribution. What the
hook calls to broadcast is replaced by an assignment of what another process would have sent.
"""

import ast
import os
import sys

import tensorflow as tf
from a_model import data, estimator, v1

with open(os.environ["HOROVOD_SOURCE"]) as file:
    tree = ast.parse(file.read())
(hook,) = [
    node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "BroadcastGlobalVariablesHook"
]
names = {
    "tf": tf,
    "_SessionRunHook": tf.estimator.SessionRunHook,
    "_get_default_graph": v1.get_default_graph,
    "broadcast_global_variables": lambda root: tf.group(
        *(variable.assign(tf.ones_like(variable) * 2) for variable in v1.global_variables() if "slope" in variable.name)
    ),
}
exec(compile(ast.Module([hook], []), "horovod", "exec"), names)
model = estimator(os.path.join(sys.argv[1], "model"))
model.train(data, hooks=[names["BroadcastGlobalVariablesHook"](0)], steps=5)
# The data's slope: no step moves it.
assert model.get_variable_value("slope") == 2, model.get_variable_value("slope")
