/* The C ABI of libengram.so: Engram tables served from memory, and the client that reads them.
 *
 * Threading contract
 *   engram_library_open: once, before anything else, from any thread.
 *   engram_server_*: create, add and listen from one thread; run blocks one thread; stop, status and counters from any.
 *   engram_client_*: any thread; lookups are served one after another by the client's proxy thread, in order of arrival.
 *   A handle belongs to the process that made it.  After fork() the child may only free it.
 * Deadlines are absolute, in nanoseconds of CLOCK_MONOTONIC.
 * Functions return an engram_status; control-path functions also write one sentence to `text`, always terminated.
 */
#ifndef ENGRAM_H
#define ENGRAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define ENGRAM_NOEXCEPT noexcept
#else
#define ENGRAM_NOEXCEPT
#endif

#define ENGRAM_EXPORT __attribute__((visibility("default")))
#define ENGRAM_ABI_VERSION 1u

typedef enum engram_status {
  ENGRAM_OK = 0,
  ENGRAM_DEADLINE = 1, /* the deadline of the wait passed first; the lookup goes on */
  ENGRAM_REFUSED = 2,  /* the peer said no; the text holds its field, its sentence and both digests */
  ENGRAM_LOST = 3,     /* no connection */
  ENGRAM_INVALID = 4,  /* an argument that cannot be served; the text names it */
  ENGRAM_IN_USE = 5,   /* another socket listens there */
  ENGRAM_CLOSED = 6,   /* the handle was closed, or belongs to the process before a fork */
  ENGRAM_UNKNOWN = 7,  /* no such ticket: waited for already, or never made */
  ENGRAM_SYSTEM = 8,   /* the operating system refused; the text says what */
  ENGRAM_SHARD = 9,    /* the local shard is not what its header and manifest say; the text names file and field */
  ENGRAM_FAILED = 10   /* neither the server nor the local shard could give the rows; the planes hold 0xFF, NaN */
} engram_status;

/* ---- library ---- */
ENGRAM_EXPORT uint32_t engram_abi_version(void) ENGRAM_NOEXCEPT;
/* libofl: path of libofl.so. */
ENGRAM_EXPORT int32_t engram_library_open(const char *libofl, char *text, size_t text_bytes) ENGRAM_NOEXCEPT;
/* "io_uring", "checksum", "huge_pages", "numa": ENGRAM_OK, or ENGRAM_SYSTEM and one sentence about what is missing. */
ENGRAM_EXPORT int32_t engram_feature(const char *name, char *text, size_t text_bytes) ENGRAM_NOEXCEPT;

/* ---- table memory ---- */
enum { ENGRAM_MEMORY_HUGE = 1 /* explicit huge pages, or fail; without it transparent ones are asked for */ };
/* Zeroed, page-aligned memory, interleaved over the NUMA nodes that the process may use; *text says what it got. */
ENGRAM_EXPORT int32_t engram_memory_allocate(uint64_t bytes, uint32_t flags, void **base, char *text,
                                             size_t text_bytes) ENGRAM_NOEXCEPT;
/* Read-only from now on: a stray write ends the process rather than changing a row. */
ENGRAM_EXPORT int32_t engram_memory_seal(void *base, uint64_t bytes, char *text, size_t text_bytes) ENGRAM_NOEXCEPT;
ENGRAM_EXPORT void engram_memory_free(void *base, uint64_t bytes) ENGRAM_NOEXCEPT;

/* ---- server ---- */
typedef struct engram_server engram_server;

typedef struct engram_server_options {
  const char *key_file;        /* NULL: none */
  const char *const *allowed;  /* as in ofl_server_options */
  uint32_t allowed_count;
  uint32_t allow_any;
  uint8_t identity[32];        /* of the manifest */
  uint32_t columns;            /* values of a row, bytes */
  uint32_t scales;             /* scales of a row, bytes */
  uint32_t gather_threads;
  uint32_t connections_max;
  uint32_t batch_rows_max;     /* most rows of one LOOKUP, over its layers */
  uint32_t calls_max;          /* unanswered LOOKUPs of one connection */
  uint32_t reply_buffers;      /* registered buffers of one batch each, shared by all connections */
  uint32_t flags;              /* 0 */
  int64_t spin_ns;
} engram_server_options;

typedef struct engram_table {
  const void *rows;   /* packed: columns values, then scales */
  uint64_t row_start; /* global id of the first row */
  uint64_t row_end;   /* and past the last */
  uint32_t layer;
  uint32_t rank;
  uint32_t ranks;
  uint32_t reserved;
} engram_table;

enum { ENGRAM_SERVER_COUNTERS = 24, ENGRAM_CLIENT_COUNTERS = 32 };

ENGRAM_EXPORT int32_t engram_server_create(const engram_server_options *options, engram_server **server, char *text,
                                           size_t text_bytes) ENGRAM_NOEXCEPT;
/* The rows stay the caller's until engram_server_free. */
ENGRAM_EXPORT int32_t engram_server_add_table(engram_server *server, const engram_table *table, char *text,
                                              size_t text_bytes) ENGRAM_NOEXCEPT;
/* transport: an ofl_transport.  After every table was added. */
ENGRAM_EXPORT int32_t engram_server_listen(engram_server *server, uint32_t transport, const char *host, uint16_t port,
                                           uint16_t *bound_port, char *text, size_t text_bytes) ENGRAM_NOEXCEPT;
/* Reply buffers are made and registered and the gather threads started, so that what can fail has failed before anybody is
 * told that the server is there.  After the last listener; engram_server_run does it where nobody did. */
ENGRAM_EXPORT int32_t engram_server_prepare(engram_server *server, char *text, size_t text_bytes) ENGRAM_NOEXCEPT;
/* Serves until engram_server_stop; lookups under way are answered first.  Once in a server's life. */
ENGRAM_EXPORT int32_t engram_server_run(engram_server *server, char *text, size_t text_bytes) ENGRAM_NOEXCEPT;
ENGRAM_EXPORT void engram_server_stop(engram_server *server) ENGRAM_NOEXCEPT;
/* values[ENGRAM_SERVER_COUNTERS]; names NULL past the last. */
ENGRAM_EXPORT void engram_server_counters(engram_server *server, uint64_t *values) ENGRAM_NOEXCEPT;
ENGRAM_EXPORT const char *engram_server_counter_name(uint32_t index) ENGRAM_NOEXCEPT;
ENGRAM_EXPORT void engram_server_free(engram_server *server) ENGRAM_NOEXCEPT;

/* ---- client ---- */
typedef struct engram_client engram_client;

typedef struct engram_layer {
  const char *shard;  /* path of the local shard of this layer and rank */
  uint64_t row_start; /* what manifest and header say; the client compares them */
  uint64_t row_end;
  uint32_t layer;
  uint32_t reserved;
  uint8_t source_sha256[32]; /* of the manifest's layer, as in the header */
} engram_layer;

enum {
  ENGRAM_BOUNCE = 1,        /* replies land in a twin and are copied by the CPU */
  ENGRAM_CHECKSUM = 2,      /* each reply carries a checksum over what was asked and its planes, which the client compares */
  ENGRAM_REQUIRED = 4,      /* engram_client_create fails unless OPEN succeeded */
  ENGRAM_BUFFERED = 8,      /* read the local shard through the page cache, never with O_DIRECT */
  ENGRAM_PREAD = 16         /* do not use io_uring */
};

typedef struct engram_client_options {
  const char *host;          /* NULL: no server, every lookup is local */
  const char *bind;          /* NULL: any */
  const char *key_file;      /* NULL: none */
  const engram_layer *layers;
  uint32_t layer_count;      /* 1 .. 64 */
  uint16_t port;
  uint16_t transport;        /* ofl_transport */
  uint8_t identity[32];
  uint32_t rank;
  uint32_t ranks;
  uint32_t columns;
  uint32_t scales;
  uint32_t batch_rows_max;   /* most rows of one lookup, over its layers */
  uint32_t flags;
  uint32_t read_threads;     /* of the pread pool */
  uint32_t reserved;
  int64_t timeout_ns;        /* of a lookup, from when the proxy takes it up */
  int64_t connect_timeout_ns;
  int64_t retry_ns;          /* first delay between attempts to connect, doubled up to retry_max_ns */
  int64_t retry_max_ns;
  int64_t heartbeat_ns;
  int64_t loss_ns;
  int64_t spin_ns;           /* how long the proxy looks for work without sleeping */
} engram_client_options;

/* One layer's part of a lookup. */
typedef struct engram_batch {
  const int32_t *ids;  /* global ids; read until the lookup ended */
  uint32_t count;
  uint32_t layer;      /* index into the options' layers */
} engram_batch;

typedef enum engram_outcome { ENGRAM_REMOTE = 1, ENGRAM_LOCAL = 2 } engram_outcome;

typedef struct engram_result {
  uint32_t outcome;    /* engram_outcome */
  uint32_t reason;     /* why it was local: index for engram_reason_name; 0: remote */
  uint64_t rows;
  uint64_t out_of_shard; /* ids without a row: their planes hold zeros */
  int64_t elapsed_ns;  /* from when the proxy took it up */
} engram_result;

ENGRAM_EXPORT int32_t engram_client_create(const engram_client_options *options, engram_client **client, char *text,
                                           size_t text_bytes) ENGRAM_NOEXCEPT;
/* Staging: memory of the caller's (pinned for the GPU by the caller), at a multiple of 64, registered with every
 * connection, at least engram_staging_bytes of its largest lookup.  Unregistered by free alone, which must come first.
 * Where this fails nothing is kept of it, and the memory is the caller's at once. */
ENGRAM_EXPORT int32_t engram_client_add_staging(engram_client *client, void *base, size_t bytes, uint32_t *staging,
                                                char *text, size_t text_bytes) ENGRAM_NOEXCEPT;
/* 64 bytes of head, then per batch its values plane and its scales plane, each padded to a multiple of 64; and never too
 * little for a refusal. */
ENGRAM_EXPORT size_t engram_staging_bytes(const uint32_t *counts, uint32_t batches, uint32_t columns,
                                          uint32_t scales) ENGRAM_NOEXCEPT;
/* Returns at once.  One lookup at a time may be open on a staging, and no layer stands twice in one.  An ended lookup that
 * nobody waited for gives way to the next one on its staging; its ticket is unknown then. */
ENGRAM_EXPORT int32_t engram_client_enqueue(engram_client *client, const engram_batch *batches, uint32_t count,
                                            uint32_t staging, uint64_t *ticket, char *text,
                                            size_t text_bytes) ENGRAM_NOEXCEPT;
ENGRAM_EXPORT int32_t engram_client_wait(engram_client *client, uint64_t ticket, int64_t deadline_ns,
                                         engram_result *result, char *text, size_t text_bytes) ENGRAM_NOEXCEPT;

/* The re-armed hand-over: a block of pinned memory that a GPU stream and the proxy share.  No padding, 64-byte aligned.
 * The stream: rows = n, ids[0..n) copied, request = 1, wait for done == 1, done = 0.
 * The proxy: request 1 -> 0 (acquire), the lookup into `staging`, done = 1 (release).  A stream cannot be told of a lookup
 * that neither the server nor the local shard could serve: the proxy then says so on stderr and aborts the process. */
typedef struct engram_handover {
  uint32_t request;
  uint32_t rows;
  uint32_t reserved0[14];
  uint32_t done;
  uint32_t reserved1[15];
} engram_handover; /* then int32 ids[rows_max] at offset 128 */

ENGRAM_EXPORT int32_t engram_client_attach(engram_client *client, engram_handover *block, uint32_t rows_max,
                                           uint32_t layer, uint32_t staging, char *text,
                                           size_t text_bytes) ENGRAM_NOEXCEPT;

/* 1: OPEN has succeeded and the connection lives.  text: the wire, or why there is none. */
ENGRAM_EXPORT int32_t engram_client_connected(engram_client *client, char *text, size_t text_bytes) ENGRAM_NOEXCEPT;
/* How the local shards are read. */
ENGRAM_EXPORT int32_t engram_client_shards(engram_client *client, char *text, size_t text_bytes) ENGRAM_NOEXCEPT;
ENGRAM_EXPORT void engram_client_counters(engram_client *client, uint64_t *values) ENGRAM_NOEXCEPT;
ENGRAM_EXPORT const char *engram_client_counter_name(uint32_t index) ENGRAM_NOEXCEPT;
/* Of the lookups with that outcome: spans in buckets of a quarter of a power of two. */
enum { ENGRAM_LATENCY_BUCKETS = 160 };
typedef struct engram_latency {
  uint64_t count;
  uint64_t sum_ns;
  uint64_t min_ns;
  uint64_t max_ns;
  uint64_t buckets[ENGRAM_LATENCY_BUCKETS];
} engram_latency;
ENGRAM_EXPORT int32_t engram_client_latency(engram_client *client, uint32_t outcome, engram_latency *latency) ENGRAM_NOEXCEPT;
/* Shortest span of a bucket, nanoseconds. */
ENGRAM_EXPORT uint64_t engram_latency_bucket_ns(uint32_t bucket) ENGRAM_NOEXCEPT;
ENGRAM_EXPORT const char *engram_reason_name(uint32_t reason) ENGRAM_NOEXCEPT;
ENGRAM_EXPORT void engram_client_close(engram_client *client) ENGRAM_NOEXCEPT; /* open lookups end locally first */
ENGRAM_EXPORT void engram_client_free(engram_client *client) ENGRAM_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
