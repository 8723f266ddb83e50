// The C ABI of the server.  Translates and guards; decides nothing.

#include "abi.hpp"
#include "abi_buffer.hpp"
#include "server.hpp"

using ofl::guarded;

struct ofl_server {
  std::unique_ptr<ofl::Server> server;
};

namespace {

// More than any memory, and far from where a sum with other bytes begins again at 0.
constexpr std::uint64_t kQueueBytesMax = SIZE_MAX / 2;

ofl::Outcome foreign() { return ofl::failure(OFL_CLOSED, "the server belongs to the process before fork()"); }

}  // namespace

std::int32_t ofl_server_create(const ofl_server_options* options, ofl_server** server, char* text,
                               std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> ofl::Outcome {
    const std::span<const char* const> allowed(options->allowed, options->allowed_count);
    const ofl::ServerOptions wanted{.service = options->service != nullptr ? options->service : "",
                                    .key_file = ofl::text_if_given(options->key_file),
                                    .allowed = {allowed.begin(), allowed.end()},
                                    .version_min = options->version_min,
                                    .version_max = options->version_max,
                                    .frame_bytes_max = options->frame_bytes_max,
                                    .connections_max = options->connections_max,
                                    .pending_max = options->pending_max,
                                    .calls_max = options->calls_max,
                                    .allow_any = options->allow_any != 0,
                                    .handshake = ofl::span_of(options->handshake_ns),
                                    .frame = ofl::span_of(options->frame_ns),
                                    .queue_bytes_max = std::min(options->queue_bytes_max, kQueueBytesMax),
                                    .spin = ofl::span_of(options->spin_ns)};
    std::unique_ptr<ofl::Server> fresh;
    ofl::Outcome outcome = ofl::Server::create(wanted, fresh);
    if (outcome) *server = new ofl_server{std::move(fresh)};
    return outcome;
  });
}

std::int32_t ofl_server_listen(ofl_server* server, std::uint32_t transport, const char* host, std::uint16_t port,
                               std::uint16_t* bound_port, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> ofl::Outcome {
    if (server->server->foreign()) return foreign();
    if (transport < OFL_TCP || transport > OFL_SHM)
      return ofl::failure(OFL_INVALID, "transport must be one of OFL_TCP, OFL_RDMA, OFL_SHM");
    return server->server->listen(static_cast<ofl::wire::Transport>(transport), host, port, *bound_port);
  });
}

std::int32_t ofl_server_register(ofl_server* server, ofl_buffer* buffer, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> ofl::Outcome {
    if (server->server->foreign()) return foreign();
    return server->server->register_memory(*buffer->memory);
  });
}

std::int32_t ofl_server_next(ofl_server* server, std::int64_t deadline_ns, ofl_event* event) noexcept {
  if (server->server->foreign()) return OFL_CLOSED;
  return guarded([&] { return server->server->next(deadline_ns, *event); });
}

std::int32_t ofl_server_reply(ofl_server* server, std::uint64_t connection, std::uint64_t sequence,
                              const ofl_part* parts, std::size_t count, ofl_buffer* lent) noexcept {
  if (server->server->foreign()) return OFL_CLOSED;
  ofl::Memory* memory = lent != nullptr ? lent->memory.get() : nullptr;
  return guarded([&] { return server->server->reply(connection, sequence, {parts, count}, memory); });
}

std::int32_t ofl_server_idle(ofl_server* server, ofl_buffer* buffer, std::int64_t deadline_ns) noexcept {
  if (server->server->foreign()) return OFL_CLOSED;
  return guarded([&] { return server->server->idle(*buffer->memory, deadline_ns); });
}

std::int32_t ofl_server_disconnect(ofl_server* server, std::uint64_t connection, const char* reason) noexcept {
  if (server->server->foreign()) return OFL_CLOSED;
  return guarded([&] { return server->server->disconnect(connection, reason != nullptr ? reason : ""); });
}

void ofl_server_wake(ofl_server* server) noexcept {
  if (!server->server->foreign()) server->server->wake();
}

void ofl_server_counters(ofl_server* server, std::uint64_t* values) noexcept {
  for (std::size_t i = 0; i < OFL_COUNTERS; ++i) values[i] = server->server->counters().at(i);
}

const char* ofl_counter_name(std::uint32_t index) noexcept { return ofl::Counters::name(index); }

void ofl_server_close(ofl_server* server) noexcept {
  if (server->server->foreign()) return;
  guarded([&] {
    server->server->close();
    return OFL_OK;
  });
}

void ofl_server_free(ofl_server* server) noexcept {
  if (server == nullptr) return;
  if (server->server->foreign()) {
    server->server->abandon();  // the rest stays: its thread is not in this process
    return;
  }
  delete server;
}
