"""What has been computed is kept under the fingerprint of all that it depends on, and found again.

    fingerprints ─► store ─► one file an artifact      <root>/<stage>/<key>.safetensors
                       └───► rows: a growing table     <root>/<stage>/<key>/<segment>.safetensors

A file is written under a temporary name, then renamed, so that a reader never sees half of one; a file that is torn,
foreign or of another format is set aside (`.bad`) and built again. One process builds a key while others wait.
Reading marks a file as used; `cache` says what there is and removes what was not used for longest.
"""

from sweep.artifacts.files import replaced
from sweep.artifacts.fingerprints import CODE, digest_texts, fingerprint
from sweep.artifacts.rows import Rows
from sweep.artifacts.store import Artifact, Store

__all__ = ["CODE", "Artifact", "Rows", "Store", "digest_texts", "fingerprint", "replaced"]
