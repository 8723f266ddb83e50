/* The C ABI of libofl.so: request/reply over one connection, a client and a server.
 *
 * Threading contract
 *   ofl_client_*: one thread at a time, except ofl_client_close and ofl_client_alive, which any thread may call.
 *   ofl_server_*: any thread, except that only one thread at a time may be in ofl_server_next.
 *   ofl_buffer_*: any thread; a buffer may be used with several clients and servers.
 *   A handle belongs to the process that made it.  After fork() the child may only close and free it.
 * Deadlines are absolute, in nanoseconds of CLOCK_MONOTONIC; one in the past means: do not wait.  Longer spans than
 * INT64_MAX / 2 ns mean that long.
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
#define OFL_ABI_VERSION 3u

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
  OFL_WOKEN = 13,      /* ofl_server_wake ended the wait */
  OFL_QUARANTINED = 14, /* the memory may still be written by a call of any connection that was cancelled */
  OFL_OVERLAP = 15      /* the memory belongs to another open call of any connection */
} ofl_status;

typedef enum ofl_transport { OFL_TCP = 1, OFL_RDMA = 2, OFL_SHM = 3 } ofl_transport;

typedef struct ofl_part {
  const void *base;
  size_t bytes;
} ofl_part;

typedef struct ofl_client ofl_client;
typedef struct ofl_server ofl_server;
typedef struct ofl_buffer ofl_buffer;

/* What this build does over one transport. */
typedef struct ofl_capabilities {
  uint32_t abi_version;
  uint32_t wire_version;
  uint32_t parts_max;          /* scatter-gather parts of one call */
  uint32_t registered_memory;  /* 1: a peer can address memory of this host by a key */
  uint32_t direct_placement;   /* 1: replies land in their memory without a staging copy */
  uint32_t one_sided;          /* 1: the receiving CPU takes no part in a placement */
} ofl_capabilities;

typedef struct ofl_client_options {
  const char *host;         /* address or name; OFL_SHM: the name that the server listens on */
  const char *bind;         /* local address to send from, or NULL */
  const char *service;      /* 1 .. 64 printable ASCII characters */
  const char *key_file;     /* both sides prove that they hold it; NULL: no authentication */
  uint16_t port;
  uint16_t version_min;
  uint16_t version_max;
  uint16_t transport;       /* ofl_transport */
  uint32_t frame_bytes_max; /* largest body in either direction */
  uint32_t reserved;
  int64_t heartbeat_ns;     /* something is sent at least this often */
  int64_t loss_ns;          /* a peer silent for this long is lost */
  int64_t spin_ns;          /* how long a wait looks without sleeping */
  int32_t *abandoned;       /* NULL, or: once another thread made it other than 0, ofl_client_connect ends with
                               OFL_INTERRUPTED, within 200 ms unless a name is being looked up */
} ofl_client_options;

typedef struct ofl_peer {
  uint64_t boot_nonce;
  uint32_t frame_bytes_max;
  uint32_t calls_max;
  uint16_t version;
  uint16_t authenticated; /* 1: both sides proved that they hold the key */
  uint32_t reserved;
  char address[112];       /* address:port of the peer; OFL_SHM: the name */
  char local_address[112]; /* address:port of this end */
  char wire[112];          /* what carries the data: "tcp", or with its device */
} ofl_peer;

/* Where a call's reply goes and what its request may read later. */
typedef struct ofl_call_options {
  ofl_buffer *into;    /* the reply is placed here; NULL: it is handed out by ofl_client_wait */
  size_t into_offset;
  size_t into_bytes;   /* the largest reply that fits; a larger one is refused to the server */
  ofl_buffer *lent;    /* parts that lie in it are sent without a copy; unchanged until the call has ended; or NULL */
} ofl_call_options;

enum { OFL_BUFFER_BOUNCE = 1 }; /* peers write into a twin; ofl_client_wait copies */

typedef struct ofl_server_options {
  const char *service;
  const char *key_file;          /* clients must prove that they hold it; NULL: no authentication */
  const char *const *allowed;    /* addresses and prefixes of clients, 10.0.0.0/24; none: all */
  uint32_t allowed_count;
  uint32_t reserved;
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
  int64_t spin_ns;               /* how long ofl_server_next looks without sleeping */
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
  uint64_t reply_bytes_max; /* REQUEST: the largest reply that this call takes */
  char text[256];       /* CONNECTED: peer address; DISCONNECTED: reason */
} ofl_event;

enum { OFL_COUNTERS = 19 };

OFL_EXPORT uint32_t ofl_abi_version(void) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_capabilities_get(uint32_t transport, ofl_capabilities *capabilities) OFL_NOEXCEPT;
/* "tcp", "shm", "rdma", "hmac-sha256": OFL_OK, or OFL_SYSTEM and one sentence about what is missing. */
OFL_EXPORT int32_t ofl_feature(const char *name, char *text, size_t text_bytes) OFL_NOEXCEPT;
/* The RDMA device, port and GID that this local address means, and why; or why there is none. */
OFL_EXPORT int32_t ofl_rdma_choice(const char *address, char *text, size_t text_bytes) OFL_NOEXCEPT;
OFL_EXPORT void ofl_body_free(void *body) OFL_NOEXCEPT;

/* base NULL: the library allocates; else the memory stays the caller's and must outlive the buffer's last call. */
OFL_EXPORT int32_t ofl_buffer_create(void *base, size_t bytes, uint32_t flags, ofl_buffer **buffer, char *text,
                                     size_t text_bytes) OFL_NOEXCEPT;
OFL_EXPORT void *ofl_buffer_base(ofl_buffer *buffer) OFL_NOEXCEPT;
OFL_EXPORT void ofl_buffer_free(ofl_buffer *buffer) OFL_NOEXCEPT; /* calls under way keep what they need */

OFL_EXPORT int32_t ofl_client_connect(const ofl_client_options *options, int64_t deadline_ns, ofl_client **client,
                                      ofl_peer *peer, char *text, size_t text_bytes) OFL_NOEXCEPT;
/* Before a buffer is used as `into` or `lent` of this client, whatever its transport; else ofl_client_submit returns
 * OFL_INVALID.  The text of a failure names the limit and the remedy. */
OFL_EXPORT int32_t ofl_client_register(ofl_client *client, ofl_buffer *buffer, char *text,
                                       size_t text_bytes) OFL_NOEXCEPT;
/* options may be NULL.  After OFL_INTERRUPTED a part of the request may be on its way: let signal handlers run, then call
 * again with the same arguments and *sequence as it was left, or cancel it, which then gives the connection up. */
OFL_EXPORT int32_t ofl_client_submit(ofl_client *client, const ofl_part *parts, size_t count,
                                     const ofl_call_options *options, int64_t deadline_ns,
                                     uint64_t *sequence) OFL_NOEXCEPT;
/* On OFL_OK *body is valid until the next call on this client; of a placed reply, for as long as its memory is. */
OFL_EXPORT int32_t ofl_client_wait(ofl_client *client, uint64_t sequence, int64_t deadline_ns, const void **body,
                                   size_t *body_bytes) OFL_NOEXCEPT;
/* OFL_QUARANTINED: the call is over, but its `into` may still be written and its `lent` read: ofl_client_settled. */
OFL_EXPORT int32_t ofl_client_cancel(ofl_client *client, uint64_t sequence) OFL_NOEXCEPT;
/* OFL_OK: nothing of the peer can reach the cancelled call's memory any more (it said so, or the connection is gone). */
OFL_EXPORT int32_t ofl_client_settled(ofl_client *client, uint64_t sequence, int64_t deadline_ns) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_client_alive(ofl_client *client) OFL_NOEXCEPT;
OFL_EXPORT void ofl_client_reason(ofl_client *client, char *text, size_t text_bytes) OFL_NOEXCEPT;
OFL_EXPORT void ofl_client_close(ofl_client *client) OFL_NOEXCEPT; /* wakes a waiter; returns once it has left */
OFL_EXPORT void ofl_client_free(ofl_client *client) OFL_NOEXCEPT;

OFL_EXPORT int32_t ofl_server_create(const ofl_server_options *options, ofl_server **server, char *text,
                                     size_t text_bytes) OFL_NOEXCEPT;
/* host: an address, or for OFL_SHM a name (port 0 then). */
OFL_EXPORT int32_t ofl_server_listen(ofl_server *server, uint32_t transport, const char *host, uint16_t port,
                                     uint16_t *bound_port, char *text, size_t text_bytes) OFL_NOEXCEPT;
/* Before a buffer is lent to replies of this server, whatever its transports; else ofl_server_reply returns OFL_INVALID and
 * the call stays open.  After the listeners were made. */
OFL_EXPORT int32_t ofl_server_register(ofl_server *server, ofl_buffer *buffer, char *text,
                                       size_t text_bytes) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_server_next(ofl_server *server, int64_t deadline_ns, ofl_event *event) OFL_NOEXCEPT;
/* lent may be NULL; parts that lie in it are sent without a copy and stay unchanged until ofl_server_idle. */
OFL_EXPORT int32_t ofl_server_reply(ofl_server *server, uint64_t connection, uint64_t sequence, const ofl_part *parts,
                                    size_t count, ofl_buffer *lent) OFL_NOEXCEPT;
/* OFL_OK once no reply of this server reads the buffer any more. */
OFL_EXPORT int32_t ofl_server_idle(ofl_server *server, ofl_buffer *buffer, int64_t deadline_ns) OFL_NOEXCEPT;
OFL_EXPORT int32_t ofl_server_disconnect(ofl_server *server, uint64_t connection, const char *reason) OFL_NOEXCEPT;
OFL_EXPORT void ofl_server_wake(ofl_server *server) OFL_NOEXCEPT;
/* Fills values[OFL_COUNTERS]; ofl_counter_name gives the name at an index, or NULL past the end. */
OFL_EXPORT void ofl_server_counters(ofl_server *server, uint64_t *values) OFL_NOEXCEPT;
OFL_EXPORT const char *ofl_counter_name(uint32_t index) OFL_NOEXCEPT;
/* Clients have a second to take what was sent to them and to hang up. */
OFL_EXPORT void ofl_server_close(ofl_server *server) OFL_NOEXCEPT;
OFL_EXPORT void ofl_server_free(ofl_server *server) OFL_NOEXCEPT;

/* Measurements inside the library, so that no interpreter is in the way.  Service "ofl-bench" version 1: a request begins
 * with uint32 mode, uint32 stamp, uint64 reply_bytes. */
typedef enum ofl_bench_mode {
  OFL_BENCH_ECHO = 1,
  OFL_BENCH_TO_SERVER = 2,
  OFL_BENCH_TO_CLIENT = 3,
  OFL_BENCH_CPU_TIME = 4 /* of a request alone, not of ofl_bench_run: 8 bytes, the server process's CPU time in nanoseconds */
} ofl_bench_mode;
/* Answers bench requests until the server is closed or woken. */
OFL_EXPORT int32_t ofl_bench_serve(ofl_server *server) OFL_NOEXCEPT;
/* `count` transfers of `bytes` in one of the first three modes, `window` open at once (1 for ECHO); memory, of
 * `window` times `bytes`: replies are placed there (TO_CLIENT), or requests are lent from it (TO_SERVER); NULL: neither.
 * samples_ns[count]: of each transfer; *elapsed_ns: from the first submit to the last reply. */
OFL_EXPORT int32_t ofl_bench_run(ofl_client *client, uint32_t mode, size_t bytes, size_t count, uint32_t window,
                                 ofl_buffer *memory, int64_t timeout_ns, int64_t *samples_ns,
                                 int64_t *elapsed_ns) OFL_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
