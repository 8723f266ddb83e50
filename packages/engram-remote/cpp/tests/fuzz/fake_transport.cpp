#include "fake_transport.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace fuzz {

namespace {

FakeTransport* current = nullptr;

void say(const char* sentence, char* text, std::size_t bytes) {
  if (text != nullptr && bytes > 0) std::snprintf(text, bytes, "%s", sentence);
}

engram::OflLibrary make_table() {
  engram::OflLibrary table{};
  table.buffer_create = [](void* base, std::size_t bytes, std::uint32_t, ofl_buffer** buffer, char* text,
                           std::size_t text_bytes) noexcept {
    say("there is no memory", text, text_bytes);
    return current->buffer_create(base, bytes, buffer);
  };
  table.buffer_base = [](ofl_buffer* buffer) noexcept -> void* { return buffer->base; };
  table.buffer_free = [](ofl_buffer* buffer) noexcept { current->buffer_free(buffer); };
  table.client_connect = [](const ofl_client_options* options, std::int64_t, ofl_client** client, ofl_peer* peer, char* text,
                            std::size_t text_bytes) noexcept {
    say("nobody answers", text, text_bytes);
    return current->connect(*options, client, *peer);
  };
  table.client_register = [](ofl_client* client, ofl_buffer* buffer, char* text, std::size_t text_bytes) noexcept {
    say("over a limit", text, text_bytes);
    return current->add(client, buffer);
  };
  table.client_submit = [](ofl_client* client, const ofl_part* parts, std::size_t count, const ofl_call_options* options,
                           std::int64_t, std::uint64_t* sequence) noexcept {
    HOLDS(count == 1, "a message is one part");
    return current->submit(client, *parts, options, *sequence);
  };
  table.client_wait = [](ofl_client* client, std::uint64_t sequence, std::int64_t, const void** body,
                         std::size_t* bytes) noexcept { return current->wait(client, sequence, body, bytes); };
  table.client_cancel = [](ofl_client* client, std::uint64_t sequence) noexcept { return current->cancel(client, sequence); };
  table.client_settled = [](ofl_client* client, std::uint64_t sequence, std::int64_t) noexcept {
    return current->settled(client, sequence);
  };
  table.client_alive = [](ofl_client* client) noexcept -> std::int32_t { return current->alive(client) ? 1 : 0; };
  table.client_reason = [](ofl_client*, char* text, std::size_t bytes) noexcept { say("the peer is silent", text, bytes); };
  table.client_close = [](ofl_client* client) noexcept { static_cast<void>(current->alive(client)); };
  table.client_free = [](ofl_client* client) noexcept { current->free(client); };
  return table;
}

}  // namespace

FakeTransport::FakeTransport(Choices& choices, Server server) : choices_(choices), server_(std::move(server)) { current = this; }

FakeTransport::~FakeTransport() {
  HOLDS(client_ == nullptr, "a connection is freed");
  HOLDS(buffers_.empty(), "every buffer is freed");
  current = nullptr;
}

std::int32_t FakeTransport::failed(std::int32_t status) noexcept {
  usable_ = false;
  return status;
}

bool FakeTransport::known(const ofl_buffer* buffer) const {
  return std::any_of(buffers_.begin(), buffers_.end(), [&](const auto& one) { return one.get() == buffer; });
}

void FakeTransport::enter(ofl_client* client) {
  HOLDS(client != nullptr && client == client_, "a handle is used while it lives");
  body_.reset();
}

std::int32_t FakeTransport::buffer_create(void* base, std::size_t bytes, ofl_buffer** buffer) {
  if (choices_.one_in(64)) return failed(OFL_SYSTEM);
  auto made = std::make_unique<ofl_buffer>();
  if (base == nullptr) made->own = std::make_unique<LandingMemory>(bytes);
  made->base = base == nullptr ? made->own->data() : static_cast<std::byte*>(base);
  made->bytes = bytes;
  *buffer = made.get();
  buffers_.push_back(std::move(made));
  return OFL_OK;
}

void FakeTransport::buffer_free(ofl_buffer* buffer) {
  HOLDS(known(buffer), "a buffer is freed once");
  std::erase_if(buffers_, [&](const auto& one) { return one.get() == buffer; });
}

std::int32_t FakeTransport::connect(const ofl_client_options& options, ofl_client** client, ofl_peer& peer) {
  HOLDS(client_ == nullptr, "there is one connection");
  if (choices_.one_in(16)) return OFL_INTERRUPTED;
  constexpr std::int32_t kFailures[] = {OFL_DEADLINE, OFL_LOST, OFL_REFUSED, OFL_INVALID, OFL_SYSTEM};
  if (choices_.one_in(32)) return failed(kFailures[choices_.below(std::size(kFailures))]);
  peer = {};
  peer.frame_bytes_max = options.frame_bytes_max;
  if (choices_.one_in(32)) {
    usable_ = false;
    --peer.frame_bytes_max;
  }
  peer.calls_max = 8;
  say("fake", peer.wire, sizeof peer.wire);
  *client = client_ = reinterpret_cast<ofl_client*>(&handle_);
  return OFL_OK;
}

std::int32_t FakeTransport::add(ofl_client* client, ofl_buffer* buffer) {
  enter(client);
  HOLDS(known(buffer), "what is registered is there");
  if (choices_.one_in(64)) return failed(OFL_LIMIT);
  buffer->registered = true;
  return OFL_OK;
}

std::int32_t FakeTransport::submit(ofl_client* client, const ofl_part& part, const ofl_call_options* options,
                                   std::uint64_t& sequence) {
  enter(client);
  HOLDS(!open_ && !must_cancel_, "one call at a time is under way");
  const auto* const bytes = static_cast<const std::byte*>(part.base);
  Message request(bytes, bytes + part.bytes);
  HOLDS(!resumes_ || request == request_, "after an interruption the same is submitted");
  request_ = std::move(request);
  options_ = options != nullptr ? *options : ofl_call_options{};
  if (options != nullptr) {
    HOLDS(known(options->into) && options->into->registered, "a reply goes to registered memory");
    HOLDS(options->into_offset + options->into_bytes <= options->into->bytes, "a reply keeps to its memory");
    HOLDS(known(options->lent) && options->lent->registered, "what is lent is registered");
  }
  resumes_ = choices_.one_in(16);
  if (resumes_) return OFL_INTERRUPTED;
  constexpr std::int32_t kFailures[] = {OFL_DEADLINE, OFL_LOST, OFL_CLOSED, OFL_LIMIT, OFL_TOO_LARGE, OFL_INVALID};
  status_ = choices_.one_in(32) ? kFailures[choices_.below(std::size(kFailures))] : OFL_OK;
  open_ = status_ == OFL_OK;
  if (open_) sequence = ++sequence_;
  return status_;
}

std::int32_t FakeTransport::wait(ofl_client* client, std::uint64_t sequence, const void** body, std::size_t* body_bytes) {
  enter(client);
  HOLDS(open_ && sequence == sequence_, "an open call is waited for");
  if (choices_.one_in(16)) return OFL_INTERRUPTED;
  constexpr std::int32_t kFailures[] = {OFL_DEADLINE, OFL_LOST, OFL_CLOSED, OFL_UNKNOWN};
  status_ = choices_.one_in(16) ? kFailures[choices_.below(std::size(kFailures))] : OFL_OK;
  if (status_ == OFL_OK) {
    reply_ = server_(request_);
    // What does not fit is refused to the server, which then ends the connection.
    if (options_.into != nullptr && reply_.size() > options_.into_bytes) status_ = OFL_LOST;
  }
  open_ = false;
  must_cancel_ = status_ == OFL_DEADLINE && options_.into != nullptr;
  if (status_ != OFL_OK) return status_;
  std::byte* to = nullptr;
  if (options_.into != nullptr) {
    to = options_.into->base + options_.into_offset;
  } else {
    body_ = std::make_unique<LandingMemory>(reply_.size());
    to = body_->data();
  }
  std::copy(reply_.begin(), reply_.end(), to);
  *body = to;
  *body_bytes = reply_.size();
  return OFL_OK;
}

std::int32_t FakeTransport::cancel(ofl_client* client, std::uint64_t sequence) {
  enter(client);
  HOLDS(must_cancel_ && sequence == sequence_, "what was not answered in time is cancelled");
  must_cancel_ = false;
  constexpr std::int32_t kAnswers[] = {OFL_OK, OFL_UNKNOWN, OFL_QUARANTINED};
  return kAnswers[choices_.below(std::size(kAnswers))];
}

std::int32_t FakeTransport::settled(ofl_client* client, std::uint64_t sequence) {
  enter(client);
  HOLDS(sequence == sequence_, "it is the call that was cancelled");
  constexpr std::int32_t kAnswers[] = {OFL_OK, OFL_DEADLINE, OFL_INTERRUPTED};
  return kAnswers[choices_.below(std::size(kAnswers))];
}

bool FakeTransport::alive(ofl_client* client) {
  enter(client);
  return true;
}

void FakeTransport::free(ofl_client* client) {
  enter(client);
  client_ = nullptr;
}

}  // namespace fuzz

namespace engram {

Outcome open_ofl(const char*) { return {}; }

const OflLibrary& ofl() noexcept {
  static const OflLibrary table = fuzz::make_table();
  return table;
}

const OflLibrary* ofl_if_open() noexcept { return &ofl(); }

Outcome needs_ofl() { return {}; }

}  // namespace engram
