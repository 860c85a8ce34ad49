"""The posts of one supervisor: how each kind of its processes is started and kept."""

import os
import socket
import time

import msgspec

from tiffin.adapters.launchers.process import ProcessLauncher
from tiffin.app.accelerators import Accelerators
from tiffin.app.boot import Boot, command
from tiffin.app.herald import Herald
from tiffin.app.keeper import Keeper, Post
from tiffin.app.log_file import LogFile, Voice
from tiffin.app.options import Options
from tiffin.app.warm_pool import WarmLauncher, WarmPool
from tiffin.control.fleet.stuck import Patience
from tiffin.types.ids import new_id
from tiffin.types.paths import DataFolder
from tiffin.types.snapshot import Deployment

CONTROL_GRACE_S = 15.0
AFTER_DRAIN_S = 5.0
# Neither has a reason to hold the GIL for long, and waiting for others is their trade.
_SERVER_PATIENCE = Patience(start_s=30.0, silent_s=30.0, by_work=False)


class _Loads(msgspec.Struct):
    """The part of a model's section that is about loading."""

    load_timeout_s: float = 300.0


class Posts:
    """Makes keepers, which have started nothing yet; `warm` processes wait for replicas."""

    def __init__(
        self, options: Options, listener: socket.socket, log_file: LogFile, herald: Herald
    ) -> None:
        self._options = options
        self._folder = DataFolder(options.data)
        self._listener = listener
        self._log_file = log_file
        self._herald = herald
        plain = ProcessLauncher()
        self.accelerators = Accelerators(self._folder.run)
        self.launcher = WarmLauncher(plain)
        self.warm = WarmPool(plain, self._warm_boot, Voice("warm", log_file.write))
        self.launcher.pool = self.warm

    def control(self) -> Keeper:
        """The post of control."""
        return self._build(
            Post(
                name="control",
                role="control",
                run=self._folder.run,
                command=lambda: command(self._boot("control", "control")),
                patience=_SERVER_PATIENCE,
                grace_s=CONTROL_GRACE_S,
            )
        )

    def gateway(self, name: str, ordinal: int) -> Keeper:
        """The post of a gateway of this name, which shares the public socket with the others."""
        fd = self._listener.fileno()

        def boot() -> Boot:
            plain = self._boot("gateway", name, listen_fd=fd)
            return msgspec.structs.replace(plain, ordinal=ordinal)

        return self._build(
            Post(
                name=name,
                role="gateway",
                run=self._folder.run,
                command=lambda: command(boot()),
                patience=_SERVER_PATIENCE,
                grace_s=self._options.server.drain_s + AFTER_DRAIN_S,
                pass_fds=(fd,),
            )
        )

    def replica(self, name: str, deployment: Deployment) -> Keeper:
        """The post of a replica; its devices are chosen at each start."""
        loads = msgspec.json.decode(deployment.spec, type=_Loads)
        return self._build(
            Post(
                name=name,
                role="replica",
                run=self._folder.run,
                command=lambda: command(
                    self._boot(
                        "replica", name, deployment=self.accelerators.placed(name, deployment)
                    )
                ),
                patience=Patience(start_s=loads.load_timeout_s),
                grace_s=self._options.server.drain_s + AFTER_DRAIN_S,
                model=deployment.model,
            )
        )

    def _build(self, post: Post) -> Keeper:
        return Keeper(
            post, self.launcher, Voice(post.name, self._log_file.write), self._herald.tell
        )

    def _boot(
        self, role: str, name: str, listen_fd: int = -1, deployment: Deployment | None = None
    ) -> Boot:
        return Boot(
            role=role,
            name=name,
            data=str(self._folder.root),
            parent_pid=os.getpid(),
            epoch=new_id("ep"),
            server=self._options.server,
            telemetry=self._options.telemetry,
            config_path=self._options.config_path,
            listen_fd=listen_fd,
            deployment=deployment,
            spawned_ns=time.time_ns(),
        )

    def _warm_boot(self, fd: int, imports: tuple[str, ...]) -> Boot:
        boot = self._boot("warm", "warm", listen_fd=fd)
        return msgspec.structs.replace(boot, imports=imports)
