"""Why a page of metrics did not come, or is none: what went wrong and what to do, in words."""

from __future__ import annotations

import http.client
import json
import socket
import ssl

CUT_SHORT = "the answer was cut short"
_TLS_ALERTS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")


def why_of(error: Exception, answered: bool) -> str:
    """Of an error below HTTP; `answered`: an answer had begun to come."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted here ({error.verify_message}); name its CA in SSL_CERT_FILE"
    if isinstance(error, ssl.SSLError):
        return "it speaks no TLS; try http://" if error.reason in _TLS_ALERTS else f"TLS failed ({error.reason})"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; is the server up, and is this its port?"
    if isinstance(error, socket.gaierror):
        return "there is no such host"
    if isinstance(error, (http.client.IncompleteRead, ConnectionError)):
        return CUT_SHORT if answered else "the connection was closed without an answer; does it want https:// ?"
    if isinstance(error, (http.client.InvalidURL, UnicodeError)):
        return "that is no address"
    if isinstance(error, http.client.HTTPException):
        return "what answers there speaks no HTTP; does it want https:// ?"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)


def why_of_status(status: int) -> str:
    """Of an answer that is not 200."""
    if status in (401, 403, 407):
        return f"it wants a key (HTTP {status}); give the one that clients use"
    if status == 404:
        return (
            "there is no such page (HTTP 404); SGLang has it with --enable-metrics, llama.cpp with --metrics, "
            "TensorRT-LLM at /prometheus/metrics with return_perf_metrics"
        )
    return f"the server answers HTTP {status}"


def why_no_page(text: str, content_type: str) -> str:
    """Why this is no page of metrics; nothing if it may be one."""
    begins = text.lstrip()[:1]
    if not begins:
        return "the page is empty; is it vLLM with --disable-log-stats?"
    if begins == "<":
        return "this is a web page, not metrics; is it the engine's port?"
    if begins in "{[" and _is_json(text):
        return "this is JSON, not metrics; TensorRT-LLM has those at /prometheus/metrics"
    if not text.endswith("\n") or ("openmetrics" in content_type.lower() and not text.rstrip().endswith("# EOF")):
        return CUT_SHORT
    return ""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    except RecursionError:
        return True  # brackets deeper than the parser goes
    return True
