// The C ABI of the server.  Translates and guards; decides nothing.

#include <algorithm>
#include <memory>
#include <string>

#include "abi.hpp"
#include "server.hpp"

using engram::guarded;

struct engram_server {
  std::unique_ptr<engram::Server> server;
};

namespace {

engram::Outcome foreign() {
  return engram::failure(ENGRAM_CLOSED, "the server belongs to the process before fork()");
}

}  // namespace

std::int32_t engram_server_create(const engram_server_options* options, engram_server** server, char* text,
                                  std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (options->flags != 0) return engram::failure(ENGRAM_INVALID, "flags has bits that are not defined");
    engram::ServerOptions wanted;
    if (options->key_file != nullptr) wanted.key_file = options->key_file;
    wanted.allowed.assign(options->allowed, options->allowed + options->allowed_count);
    wanted.allow_any = options->allow_any != 0;
    std::copy_n(options->identity, wanted.identity.size(), wanted.identity.begin());
    wanted.columns = options->columns;
    wanted.scales = options->scales;
    wanted.gather_threads = options->gather_threads;
    wanted.connections_max = options->connections_max;
    wanted.batch_rows_max = options->batch_rows_max;
    wanted.calls_max = options->calls_max;
    wanted.reply_buffers = options->reply_buffers;
    wanted.spin = options->spin_ns;
    std::unique_ptr<engram::Server> fresh;
    engram::Outcome outcome = engram::Server::create(wanted, fresh);
    if (outcome) *server = new engram_server{std::move(fresh)};
    return outcome;
  });
}

std::int32_t engram_server_add_table(engram_server* server, const engram_table* table, char* text,
                                     std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (server->server->foreign()) return foreign();
    const engram::Rows rows{.packed = static_cast<const std::byte*>(table->rows),
                            .row_start = table->row_start,
                            .row_end = table->row_end,
                            .columns = 0,
                            .scales = 0};
    return server->server->add_table({rows, table->layer, table->rank, table->ranks});
  });
}

std::int32_t engram_server_listen(engram_server* server, std::uint32_t transport, const char* host, std::uint16_t port,
                                  std::uint16_t* bound_port, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (server->server->foreign()) return foreign();
    return server->server->listen(transport, host, port, *bound_port);
  });
}

std::int32_t engram_server_prepare(engram_server* server, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (server->server->foreign()) return foreign();
    return server->server->prepare();
  });
}

std::int32_t engram_server_run(engram_server* server, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> engram::Outcome {
    if (server->server->foreign()) return foreign();
    return server->server->run();
  });
}

void engram_server_stop(engram_server* server) noexcept {
  if (!server->server->foreign()) server->server->stop();
}

void engram_server_counters(engram_server* server, std::uint64_t* values) noexcept {
  for (std::size_t i = 0; i < ENGRAM_SERVER_COUNTERS; ++i)
    values[i] = i < engram::ServerCounters::kCount ? server->server->counters().value(i) : 0;
}

const char* engram_server_counter_name(std::uint32_t index) noexcept { return engram::ServerCounters::name(index); }

void engram_server_free(engram_server* server) noexcept {
  if (server == nullptr) return;
  if (server->server->foreign()) {
    static_cast<void>(server->server.release());  // its threads are not in this process
  }
  delete server;
}
