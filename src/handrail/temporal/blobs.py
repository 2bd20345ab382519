"""Stores of large values, which the cluster's history would not take; each under its hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio.to_thread
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from handrail.cluster_errors import BlobMissing
from handrail.errors import MissingExtra, WrongUse

LARGE_BYTES = 256 << 10
"""Values of at least this size go to the store."""
_KEY = "sha256"


def blobs_at(where: str | os.PathLike[str] | StorageDriver | None) -> StorageDriver | None:
    """The store at a folder, or at an address that fsspec knows (``s3://bucket/prefix``).

    Raises:
        MissingExtra: fsspec is not installed. WrongUse: ``where`` is neither.
    """
    if where is None or isinstance(where, StorageDriver):
        return where
    if not isinstance(where, (str, os.PathLike)):
        raise WrongUse(f"blobs= takes a folder or an address such as 's3://bucket', got {where!r}")
    text = os.fspath(where)
    return FsspecBlobs(text) if "://" in text else FolderBlobs(Path(text))


class _Blobs(StorageDriver):
    """Values under their hash: the same value is stored once, and never changes."""

    def name(self) -> str:
        """The store's name in a history's references, the same for every place of the store."""
        return "handrail"

    async def store(
        self, context: StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[StorageDriverClaim]:
        """Store the values; returns a reference to each."""
        del context
        claims: list[StorageDriverClaim] = []
        for payload in payloads:
            data = payload.SerializeToString(deterministic=True)
            name = hashlib.sha256(data).hexdigest()
            await anyio.to_thread.run_sync(self.put, name, data)
            claims.append(StorageDriverClaim({_KEY: name}))
        return claims

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """The values of references.

        Raises:
            BlobMissing: a value is not in the store, or does not have its hash.
        """
        del context
        found: list[Payload] = []
        for claim in claims:
            name = claim.claim_data[_KEY]
            data = await anyio.to_thread.run_sync(self.get, name)
            if data is None or hashlib.sha256(data).hexdigest() != name:
                raise BlobMissing(name, self.where, damaged=data is not None)
            found.append(Payload.FromString(data))
        return found

    @property
    def where(self) -> str:
        """The store's place, for people."""
        raise NotImplementedError

    def put(self, name: str, data: bytes) -> None:
        """Keep a value under a name, whole or not at all."""
        raise NotImplementedError

    def get(self, name: str) -> bytes | None:
        """The value of a name, or None."""
        raise NotImplementedError


class FolderBlobs(_Blobs):
    """A folder that workers and clients share."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._folder.absolute())

    def put(self, name: str, data: bytes) -> None:
        """Write the file of this name, unless it exists."""
        file = self._file(name)
        if file.exists():
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            beside.write_bytes(data)
            beside.replace(file)
        finally:
            beside.unlink(missing_ok=True)

    def get(self, name: str) -> bytes | None:
        """Read the file of this name; None if it is missing."""
        try:
            return self._file(name).read_bytes()
        except FileNotFoundError:
            return None

    def _file(self, name: str) -> Path:
        return self._folder / name[:2] / name


class FsspecBlobs(_Blobs):
    """An address that fsspec knows: S3, GCS, Azure, and more."""

    def __init__(self, url: str, **options: Any) -> None:
        try:
            core: Any = import_module("fsspec.core")
        except ImportError:
            raise MissingExtra(f"blobs={url!r}", "fsspec", "temporal") from None
        self._url = url.rstrip("/")
        self._files, self._root = core.url_to_fs(self._url, **options)

    @property
    def where(self) -> str:
        """The address."""
        return self._url

    def put(self, name: str, data: bytes) -> None:
        """Write the object of this name, unless it exists."""
        path = self._path(name)
        if self._files.exists(path):
            return
        self._files.makedirs(self._files._parent(path), exist_ok=True)  # noqa: SLF001  # public in practice
        self._files.pipe_file(path, data)

    def get(self, name: str) -> bytes | None:
        """Read the object of this name; None if it is missing."""
        try:
            data: bytes = self._files.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        return data

    def _path(self, name: str) -> str:
        return f"{self._root}/{name[:2]}/{name}"
