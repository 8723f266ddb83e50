/* The C ABI of libofl.so: request/reply over one connection, a client and a server.
 *
 * Threading contract
 *   ofl_client_*: one thread at a time, except ofl_client_close and ofl_client_alive, which any thread may call.
 *   ofl_server_*: any thread, except that only one thread at a time may be in ofl_server_next.
 *   A handle belongs to the process that made it.  After fork() the child may only close and free it.
 * Deadlines are absolute, in nanoseconds of CLOCK_MONOTONIC; one in the past means: do not wait.
 * Every function returns an ofl_status; control-path functions also write one sentence to `text`, always terminated.
 */
#ifndef OFL_H
#define OFL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define OFL_NOEXCEPT noexcept
#else
#define OFL_NOEXCEPT
#endif

#define OFL_EXPORT __attribute__((visibility("default")))
#define OFL_ABI_VERSION 1u

typedef enum ofl_status {
  OFL_OK = 0,
  OFL_DEADLINE = 1,    /* the deadline passed first */
  OFL_LOST = 2,        /* the connection is unusable; ofl_client_reason says why */
  OFL_REFUSED = 3,     /* the peer said no, or nobody listens there */
  OFL_TOO_LARGE = 4,   /* over the agreed frame limit; nothing was sent */
  OFL_CLOSED = 5,      /* this side closed the handle, or the handle belongs to the process before a fork */
  OFL_IN_USE = 6,      /* another socket listens there */
  OFL_INVALID = 7,     /* an argument that cannot be served; the text names it */
  OFL_LIMIT = 8,       /* as many calls are open as both sides agreed on */
  OFL_UNKNOWN = 9,     /* no such call or connection: ended, cancelled, or never made */
  OFL_INTERRUPTED = 10, /* nothing yet: let signal handlers run, then call again with the same deadline */
  OFL_BUSY = 11,       /* another thread is inside the call */
  OFL_SYSTEM = 12,     /* the operating system refused; the text says what */
  OFL_WOKEN = 13       /* ofl_server_wake ended the wait */
} ofl_status;

typedef struct ofl_part {
  const void *base;
  size_t bytes;
} ofl_part;

typedef struct ofl_client ofl_client;
typedef struct ofl_server ofl_server;

/* What this build can do. */
typedef struct ofl_capabilities {
  uint32_t abi_version;
  uint32_t wire_version;
  uint32_t parts_max;          /* scatter-gather parts of one call */
  uint32_t registered_memory;  /* 1: a peer can address memory of this host by a key */
  uint32_t direct_placement;   /* 1: replies land in their slot without a staging copy */
  uint32_t one_sided;          /* 1: the receiving CPU takes no part in a placement */
} ofl_capabilities;

typedef struct ofl_client_options {
  const char *host;         /* address or name */
  const char *bind;         /* local address to send from, or NULL */
  const char *service;      /* 1 .. 64 printable ASCII characters */
  uint16_t port;
  uint16_t version_min;
  uint16_t version_max;
  uint16_t reserved;
  uint32_t frame_bytes_max; /* largest body in either direction */
  uint32_t reserved_2;
  int64_t heartbeat_ns;     /* something is sent at least this often */
  int64_t loss_ns;          /* a peer silent for this long is lost */
} ofl_client_options;

typedef struct ofl_peer {
  uint64_t boot_nonce;
  uint32_t frame_bytes_max;
  uint32_t calls_max;
  uint16_t version;
  uint16_t reserved[3];
  char address[64];       /* address:port of the peer */
  char local_address[64]; /* address:port of this end */
} ofl_peer;

typedef struct ofl_server_options {
  const char *service;
  uint16_t version_min;
  uint16_t version_max;
  uint32_t frame_bytes_max;
  uint32_t connections_max;      /* negotiated connections at once */
  uint32_t pending_max;          /* connections still negotiating; the oldest gives way */
  uint32_t calls_max;            /* unanswered requests of one connection, at most 256 */
  uint32_t allow_any;            /* 1: a wildcard address may be listened on */
  int64_t handshake_ns;          /* a connection that has not negotiated by then is dropped */
  int64_t frame_ns;              /* a frame that was begun must be complete by then */
  uint64_t queue_bytes_max;      /* undelivered request bytes of one connection before reading stops */
} ofl_server_options;

typedef enum ofl_event_kind { OFL_EVENT_CONNECTED = 1, OFL_EVENT_REQUEST = 2, OFL_EVENT_DISCONNECTED = 3 } ofl_event_kind;

typedef struct ofl_event {
  uint32_t kind;
  uint32_t version;     /* CONNECTED: the version agreed on */
  uint64_t connection;
  uint64_t sequence;
  int64_t received_ns;
  void *body;           /* REQUEST: its bytes */
  uint64_t body_bytes;
  uint64_t capacity;    /* 0: body is valid until the next ofl_server_next; else the caller frees it with ofl_body_free */
  char text[256];       /* CONNECTED: peer address; DISCONNECTED: reason */
} ofl_event;

enum { OFL_COUNTERS = 15 };

OFL_EXPORT uint32_t ofl_abi_version(void) OFL_NOEXCEPT;
OFL_EXPORT void ofl_capabilities_get(ofl_capabilities *capabilities) OFL_NOEXCEPT;
OFL_EXPORT void ofl_body_free(void *body) OFL_NOEXCEPT;

OFL_EXPORT int32_t ofl_client_connect(const ofl_client_options *options, int64_t deadline_ns, ofl_client **client,
                                      ofl_peer *peer, char *text, size_t text_bytes) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_client_submit(ofl_client *client, const ofl_part *parts, size_t count, int64_t deadline_ns,
                                     uint64_t *sequence) OFL_NOEXCEPT;
/* On OFL_OK *body is valid until the next call on this client. */
OFL_EXPORT int32_t ofl_client_wait(ofl_client *client, uint64_t sequence, int64_t deadline_ns, const void **body,
                                   size_t *body_bytes) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_client_cancel(ofl_client *client, uint64_t sequence) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_client_alive(ofl_client *client) OFL_NOEXCEPT;
OFL_EXPORT void ofl_client_reason(ofl_client *client, char *text, size_t text_bytes) OFL_NOEXCEPT;
OFL_EXPORT void ofl_client_close(ofl_client *client) OFL_NOEXCEPT; /* wakes a waiter; returns once it has left */
OFL_EXPORT void ofl_client_free(ofl_client *client) OFL_NOEXCEPT;

OFL_EXPORT int32_t ofl_server_create(const ofl_server_options *options, ofl_server **server, char *text,
                                     size_t text_bytes) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_server_listen(ofl_server *server, const char *host, uint16_t port, uint16_t *bound_port,
                                     char *text, size_t text_bytes) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_server_next(ofl_server *server, int64_t deadline_ns, ofl_event *event) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_server_reply(ofl_server *server, uint64_t connection, uint64_t sequence, const ofl_part *parts,
                                    size_t count) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_server_disconnect(ofl_server *server, uint64_t connection, const char *reason) OFL_NOEXCEPT;
OFL_EXPORT void ofl_server_wake(ofl_server *server) OFL_NOEXCEPT;
/* Fills values[OFL_COUNTERS]; ofl_counter_name gives the name at an index, or NULL past the end. */
OFL_EXPORT void ofl_server_counters(ofl_server *server, uint64_t *values) OFL_NOEXCEPT;
OFL_EXPORT const char *ofl_counter_name(uint32_t index) OFL_NOEXCEPT;
OFL_EXPORT void ofl_server_close(ofl_server *server) OFL_NOEXCEPT;
OFL_EXPORT void ofl_server_free(ofl_server *server) OFL_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
