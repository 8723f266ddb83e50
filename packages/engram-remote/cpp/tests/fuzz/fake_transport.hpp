// A twin of libofl for the client's connection, within the process: what each call comes to follows from choices, and what the
// server answers is the target's to say.  It stands where ofl_library.cpp stands in the library.
//
// It holds its caller to ofl.h: handles are used while they live and freed once, memory is registered before it is used, a
// call that is not over is cancelled before its memory is used again, and a body is not read beyond its time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "contract.hpp"
#include "exchange.hpp"
#include "harness.hpp"
#include "ofl_library.hpp"

struct ofl_buffer {
  std::unique_ptr<fuzz::LandingMemory> own;
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  bool registered = false;
};

namespace fuzz {

class FakeTransport {
 public:
  using Server = std::function<Message(contract::Bytes request)>;

  // The one that libengram's calls reach, while it lives.
  FakeTransport(Choices& choices, Server server);
  ~FakeTransport();
  FakeTransport(const FakeTransport&) = delete;
  FakeTransport& operator=(const FakeTransport&) = delete;

  // The last call: its request, whether submit and wait took it, and what came.
  const Message& request() const noexcept { return request_; }
  std::int32_t status() const noexcept { return status_; }
  const Message& reply() const noexcept { return reply_; }
  const ofl_call_options& options() const noexcept { return options_; }
  // Whether connecting, buffers and registrations succeeded.
  bool usable() const noexcept { return usable_; }
  bool must_cancel() const noexcept { return must_cancel_; }

  std::int32_t buffer_create(void* base, std::size_t bytes, ofl_buffer** buffer);
  void buffer_free(ofl_buffer* buffer);
  std::int32_t connect(const ofl_client_options& options, ofl_client** client, ofl_peer& peer);
  std::int32_t add(ofl_client* client, ofl_buffer* buffer);
  std::int32_t submit(ofl_client* client, const ofl_part& part, const ofl_call_options* options, std::uint64_t& sequence);
  std::int32_t wait(ofl_client* client, std::uint64_t sequence, const void** body, std::size_t* body_bytes);
  std::int32_t cancel(ofl_client* client, std::uint64_t sequence);
  std::int32_t settled(ofl_client* client, std::uint64_t sequence);
  bool alive(ofl_client* client);
  void free(ofl_client* client);

 private:
  std::int32_t failed(std::int32_t status) noexcept;
  void enter(ofl_client* client);  // any call on the client
  bool known(const ofl_buffer* buffer) const;

  Choices& choices_;
  const Server server_;
  std::vector<std::unique_ptr<ofl_buffer>> buffers_;
  int handle_ = 0;
  ofl_client* client_ = nullptr;
  bool usable_ = true;
  bool open_ = false;  // a call is
  bool must_cancel_ = false;
  bool resumes_ = false;  // submit said that it is to be called again
  std::uint64_t sequence_ = 0;
  std::int32_t status_ = OFL_OK;
  ofl_call_options options_{};
  Message request_;
  Message reply_;
  std::unique_ptr<LandingMemory> body_;  // of a reply that was not placed
};

}  // namespace fuzz
