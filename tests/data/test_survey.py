from pathlib import Path

from stoker import api


def test_a_pack_whose_bytes_have_changed_is_noticed(dial_folder: Path):
    api.pack(dial_folder, "packed", keep=True, workers=1, show=False)
    assert not api.inspect("packed", show=False).look.bad
    shard = Path("packed/train-00000.tar")
    raw = bytearray(shard.read_bytes())
    # Within the first picture: behind a header of 512 bytes.
    raw[1000] ^= 1
    shard.write_bytes(raw)
    [(place, reason)] = api.inspect("packed", show=False).look.bad.items()
    assert "train-00000.tar at byte 512" in place and "not those that were packed" in reason
