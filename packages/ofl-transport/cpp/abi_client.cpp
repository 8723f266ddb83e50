// The C ABI of the client.  Translates and guards; decides nothing.

#include "abi.hpp"
#include "abi_buffer.hpp"
#include "client.hpp"

using ofl::guarded;

struct ofl_client {
  ofl::Client client;
};

namespace {

ofl::Outcome foreign() { return ofl::failure(OFL_CLOSED, "the connection belongs to the process before fork()"); }

std::string text_or_empty(const char* text) { return text != nullptr ? text : ""; }

ofl::ClientOptions from_abi(const ofl_client_options& options) {
  return {.host = text_or_empty(options.host),
          .bind = text_or_empty(options.bind),
          .service = text_or_empty(options.service),
          .key_file = ofl::text_if_given(options.key_file),
          .port = options.port,
          .version_min = options.version_min,
          .version_max = options.version_max,
          .transport = static_cast<ofl::wire::Transport>(options.transport),
          .frame_bytes_max = options.frame_bytes_max,
          .heartbeat = ofl::span_of(options.heartbeat_ns),
          .loss = ofl::span_of(options.loss_ns),
          .spin = ofl::span_of(options.spin_ns),
          .abandoned = options.abandoned};
}

void to_abi(const ofl::Agreement& agreement, const std::string& wire, ofl_peer& peer) {
  peer = {};
  peer.boot_nonce = agreement.boot_nonce;
  peer.frame_bytes_max = agreement.frame_bytes_max;
  peer.calls_max = agreement.calls_max;
  peer.version = agreement.version;
  peer.authenticated = agreement.authenticated ? 1 : 0;
  ofl::copy_text(wire, peer.wire, sizeof peer.wire);
  ofl::copy_text(agreement.peer_address, peer.address, sizeof peer.address);
  ofl::copy_text(agreement.local_address, peer.local_address, sizeof peer.local_address);
}

ofl::CallMemory from_abi(const ofl_call_options* options) {
  if (options == nullptr) return {};
  ofl::CallMemory memory;
  if (options->into != nullptr) memory.into = options->into->memory;
  memory.offset = options->into_offset;
  memory.bytes = options->into_bytes;
  if (options->lent != nullptr) memory.lent = options->lent->memory;
  return memory;
}

}  // namespace

std::int32_t ofl_client_connect(const ofl_client_options* options, std::int64_t deadline_ns, ofl_client** client,
                                ofl_peer* peer, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> ofl::Outcome {
    if (options->transport < OFL_TCP || options->transport > OFL_SHM)
      return ofl::failure(OFL_INVALID, "transport must be one of OFL_TCP, OFL_RDMA, OFL_SHM");
    const ofl::ClientOptions wanted = from_abi(*options);
    std::unique_ptr<ofl::Channel> channel;
    ofl::Agreement agreement;
    ofl::Outcome outcome = ofl::open_channel(wanted, deadline_ns, channel, agreement);
    if (!outcome) return outcome;
    std::unique_ptr<ofl_client> fresh(new ofl_client{ofl::Client(std::move(channel), wanted, agreement)});
    to_abi(agreement, fresh->client.describe(), *peer);
    *client = fresh.release();
    return {};
  });
}

std::int32_t ofl_client_register(ofl_client* client, ofl_buffer* buffer, char* text, std::size_t text_bytes) noexcept {
  return guarded(text, text_bytes, [&]() -> ofl::Outcome {
    if (client->client.foreign()) return foreign();
    return client->client.register_memory(*buffer->memory);
  });
}

std::int32_t ofl_client_submit(ofl_client* client, const ofl_part* parts, std::size_t count,
                               const ofl_call_options* options, std::int64_t deadline_ns,
                               std::uint64_t* sequence) noexcept {
  if (client->client.foreign()) return OFL_CLOSED;
  return guarded([&] { return client->client.submit({parts, count}, from_abi(options), deadline_ns, *sequence); });
}

std::int32_t ofl_client_wait(ofl_client* client, std::uint64_t sequence, std::int64_t deadline_ns, const void** body,
                             std::size_t* body_bytes) noexcept {
  if (client->client.foreign()) return OFL_CLOSED;
  return guarded([&] {
    std::span<const std::byte> view;
    const ofl::Status status = client->client.wait(sequence, deadline_ns, view);
    *body = view.data();
    *body_bytes = view.size();
    return status;
  });
}

std::int32_t ofl_client_cancel(ofl_client* client, std::uint64_t sequence) noexcept {
  if (client->client.foreign()) return OFL_CLOSED;
  return guarded([&] { return client->client.cancel(sequence); });
}

std::int32_t ofl_client_settled(ofl_client* client, std::uint64_t sequence, std::int64_t deadline_ns) noexcept {
  if (client->client.foreign()) return OFL_CLOSED;
  return guarded([&] { return client->client.settled(sequence, deadline_ns); });
}

std::int32_t ofl_client_alive(ofl_client* client) noexcept {
  return !client->client.foreign() && client->client.alive() ? 1 : 0;
}

void ofl_client_reason(ofl_client* client, char* text, std::size_t text_bytes) noexcept {
  guarded(text, text_bytes, [&]() -> ofl::Outcome {
    if (client->client.foreign()) return foreign();  // a thread that is not here may hold the lock
    return {OFL_OK, client->client.reason()};
  });
}

void ofl_client_close(ofl_client* client) noexcept {
  if (client->client.foreign()) return;
  guarded([&] {
    client->client.close();
    return OFL_OK;
  });
}

void ofl_client_free(ofl_client* client) noexcept {
  if (client == nullptr) return;
  if (client->client.foreign()) {
    client->client.abandon();  // the rest stays: its thread is not in this process
    return;
  }
  delete client;
}
