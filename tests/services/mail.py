"""A mail server on loopback: keeps what it is sent, speaks STARTTLS and TLS, wants a login, misbehaves when told to."""

from __future__ import annotations

import base64
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage

from tests.services.threaded import in_thread


class MailServer:
    """`answers` are given in place of the usual one, by the verb, or the whole line, that they answer: {"RCPT": "550 no
    such user"}. With "" it hangs up."""

    def __init__(self, *, context: ssl.SSLContext | None = None, tls: bool = False, user: str = "", password: str = ""):
        self.port = 0
        self.context, self.tls, self.user, self.password = context, tls, user, password
        self.mails: list[EmailMessage] = []
        self.envelopes: list[tuple[str, list[str]]] = []
        self.answers: dict[str, str] = {}
        self.silent = threading.Event()  # while it is set, nothing is answered any more
        self.secured: list[bool] = []  # for each mail
        self.lines: list[str] = []


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        mail = self.server.mail
        secured = mail.tls
        if mail.tls:
            self._secure()
        sender, recipients, known = "", [], not mail.user
        self._say("220 mail.test ESMTP")
        while line := self.rfile.readline(2000):
            text = line.decode(errors="replace").strip()
            mail.lines.append(text)
            verb = text.partition(" ")[0].upper()
            if mail.silent.is_set():
                threading.Event().wait(60)  # until the client has gone
                return
            own = mail.answers.get(text, mail.answers.get(verb))
            if own == "":
                return
            if own is not None:
                self._say(own)
            elif verb in ("EHLO", "HELO"):
                more = [] if secured or mail.context is None else ["STARTTLS"]
                self._say(*(f"250-{word}" for word in ["mail.test", *more, "AUTH PLAIN LOGIN"]), "250 8BITMIME")
            elif verb == "STARTTLS":
                self._say("220 go ahead")
                self._secure()
                secured = True
            elif verb == "AUTH":
                said = base64.b64decode(text.split()[2]).decode().split("\0")
                known = said[1:] == [mail.user, mail.password]
                self._say("235 welcome" if known else "535 who are you?")
            elif not known:
                self._say("530 log in first")
            elif verb == "MAIL":
                sender, recipients = text.partition(":")[2].strip("<> "), []
                self._say("250 ok")
            elif verb == "RCPT":
                recipients.append(text.partition(":")[2].strip("<> "))
                self._say("250 ok")
            elif verb == "DATA":
                self._say("354 go ahead")
                body = b""
                while (more_body := self.rfile.readline()) not in (b".\r\n", b""):
                    body += more_body[1:] if more_body.startswith(b"..") else more_body
                mail.mails.append(message_from_bytes(body, policy=policy.default))
                mail.envelopes.append((sender, recipients))
                mail.secured.append(secured)
                self._say("250 taken")
            elif verb == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("502 what?")

    def _secure(self) -> None:
        context = self.server.mail.context
        assert context is not None
        self.request = context.wrap_socket(self.request, server_side=True)
        self.rfile, self.wfile = self.request.makefile("rb", 0), self.request.makefile("wb", 0)

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    mail: MailServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is nothing to print."""


@contextmanager
def mailing(**terms: object) -> Iterator[MailServer]:
    mail = MailServer(**terms)  # type: ignore[arg-type]
    server = _Server(("127.0.0.1", 0), _Handler)
    server.mail = mail
    mail.port = server.server_address[1]
    with in_thread(server):
        yield mail
