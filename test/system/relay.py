"""A TCP port before a cluster's Unix socket that can swallow everything, as a network does that is gone:
nothing passes, nothing is closed, and new connections are taken into silence."""

import contextlib
import socket
import threading


class Relay:
    def __init__(self, cluster):
        self.path, self.open = str(cluster.folder / ".s.PGSQL.5432"), threading.Event()
        self.open.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self.path)
            except OSError:
                near.close()
                continue
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=(source, target, self.open),
                                 daemon=True).start()

    def pump(self, source, target, passes):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                passes.wait()
                target.sendall(data)
        passes.wait()
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def swallow(self):
        """For good what is connected now; who comes from now on is served."""
        self.open.clear()
        self.open = threading.Event()
        self.open.set()
