"""How the runner gets a node's resources, without knowing any real part."""

from typing import Protocol

from shared.plan import Plan
from workers.models.roles import CallRecorder
from workers.nodes.resources import Resources


class ResourceFactory(Protocol):
    def make(self, plan: Plan, recorder: CallRecorder) -> Resources: ...
