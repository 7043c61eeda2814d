"""A TCP port before a Unix socket that can swallow everything, as a network does that is gone."""

import socket
import threading


class Relay:
    def __init__(self, path):
        self.path, self.open = str(path), threading.Event()
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
                threading.Thread(target=self.pump, args=(source, target), daemon=True).start()

    def pump(self, source, target):
        try:
            while data := source.recv(65536):
                self.open.wait()
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
