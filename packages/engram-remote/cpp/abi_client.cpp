// The C ABI of the client.  Translates and guards; decides nothing.

#include <algorithm>
#include <string>

#include "abi.hpp"
#include "client.hpp"

using engram::guarded;

struct engram_client {
  std::unique_ptr<engram::Client> client;
};

namespace {

engram::Outcome after_fork() {
  return engram::failure(ENGRAM_CLOSED, "the client belongs to the process before fork()");
}

}  // namespace

std::int32_t engram_client_create(const engram_client_options* options, engram_client** client, char* text,
                                  std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    std::unique_ptr<engram::Client> made;
    engram::Outcome outcome = engram::Client::create(*options, made);
    if (outcome) *client = new engram_client{std::move(made)};
    return outcome;
  });
}

std::int32_t engram_client_add_staging(engram_client* client, void* base, std::size_t bytes, std::uint32_t* staging,
                                       char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (client->client->foreign()) return after_fork();
    return client->client->add_staging(base, bytes, *staging);
  });
}

std::size_t engram_staging_bytes(const std::uint32_t* counts, std::uint32_t batches, std::uint32_t columns,
                                 std::uint32_t scales) noexcept {
  std::size_t bytes = engram::wire::kHeadBytes;
  for (std::uint32_t i = 0; i < batches; ++i) bytes += engram::wire::part_bytes(counts[i], columns, scales);
  return std::max(bytes, engram::kStagingBytesMin);
}

std::int32_t engram_client_enqueue(engram_client* client, const engram_batch* batches, std::uint32_t count,
                                   std::uint32_t staging, std::uint64_t* ticket, char* text,
                                   std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (client->client->foreign()) return after_fork();
    return client->client->enqueue({batches, count}, staging, *ticket);
  });
}

std::int32_t engram_client_wait(engram_client* client, std::uint64_t ticket, std::int64_t deadline_ns,
                                engram_result* result, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (client->client->foreign()) return after_fork();
    return client->client->wait(ticket, deadline_ns, *result);
  });
}

std::int32_t engram_client_attach(engram_client* client, engram_handover* block, std::uint32_t rows_max,
                                  std::uint32_t layer, std::uint32_t staging, char* text,
                                  std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (client->client->foreign()) return after_fork();
    return client->client->attach(block, rows_max, layer, staging);
  });
}

std::int32_t engram_client_connected(engram_client* client, char* text, std::size_t text_bytes) noexcept {
  bool connected = false;
  guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (client->client->foreign()) return after_fork();
    engram::Outcome outcome;
    connected = client->client->connected(outcome.text);
    return outcome;
  });
  return connected ? 1 : 0;
}

std::int32_t engram_client_shards(engram_client* client, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (client->client->foreign()) return after_fork();
    return {ENGRAM_OK, client->client->describe_shards()};
  });
}

void engram_client_counters(engram_client* client, std::uint64_t* values) noexcept {
  client->client->counters().copy_to(values);
}

const char* engram_client_counter_name(std::uint32_t index) noexcept { return engram::client_counter_name(index); }

std::int32_t engram_client_latency(engram_client* client, std::uint32_t outcome, engram_latency* latency) noexcept {
  if (outcome != ENGRAM_REMOTE && outcome != ENGRAM_LOCAL) return ENGRAM_INVALID;
  const engram::ClientCounters& counters = client->client->counters();
  (outcome == ENGRAM_REMOTE ? counters.remote : counters.local).copy_to(*latency);
  return ENGRAM_OK;
}

std::uint64_t engram_latency_bucket_ns(std::uint32_t bucket) noexcept { return engram::Latency::bucket_floor_ns(bucket); }

const char* engram_reason_name(std::uint32_t reason) noexcept {
  return reason < engram::kReasons ? engram::kReasonNames[reason] : nullptr;
}

void engram_client_close(engram_client* client) noexcept {
  if (!client->client->foreign()) client->client->close();
}

void engram_client_free(engram_client* client) noexcept {
  if (client == nullptr) return;
  if (client->client->foreign()) {
    client->client->abandon();  // the rest stays: its threads are not in this process
    return;
  }
  delete client;
}
