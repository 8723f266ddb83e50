// The TCP backend's connection: one non-blocking socket.  Owns the framing of the byte stream, nothing of its meaning.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "backend.hpp"
#include "socket.hpp"

namespace ofl {

class TcpChannel final : public Channel {
 public:
  explicit TcpChannel(UniqueFd socket) noexcept : socket_(std::move(socket)) {}

  static Capabilities tcp_capabilities() noexcept;

  Capabilities capabilities() const noexcept override { return tcp_capabilities(); }
  int descriptor() const noexcept override { return socket_.get(); }
  Region register_memory(std::span<std::byte> memory) noexcept override;
  void retract(const std::byte* memory) noexcept override;
  Progress send(Outgoing& frame) noexcept override;
  Progress place(wire::Slot remote, Outgoing& frame) noexcept override;
  Progress receive(Inbox& inbox, std::size_t budget) noexcept override;
  Wait wait_readable(Nanoseconds deadline) noexcept override;
  bool readable_now() noexcept override;
  bool mid_frame() const noexcept override { return in_body_ || staged_ > 0; }
  std::uint64_t bytes_received() const noexcept override { return received_; }
  void shut_down() noexcept override;
  void end_sending() noexcept override;
  const char* fault() const noexcept override { return fault_; }

 private:
  static constexpr std::size_t kStageBytes = 16384;  // small frames arrive whole in one read

  Progress read_body(Inbox& inbox, std::size_t& budget, bool& drained) noexcept;
  Progress read_stage(Inbox& inbox, std::size_t& budget, bool& drained) noexcept;
  bool parse_stage(Inbox& inbox) noexcept;
  bool begin_frame(Inbox& inbox) noexcept;
  Progress fail(const char* clause) noexcept;
  ssize_t read_some(std::byte* to, std::size_t bytes, Progress& stopped) noexcept;

  UniqueFd socket_;
  std::array<std::byte, kStageBytes> stage_{};
  std::size_t staged_ = 0;  // bytes at the front of stage_ that are not parsed: less than a header between calls
  wire::FrameHeader header_{};
  bool in_body_ = false;
  std::byte* landing_ = nullptr;  // where the body goes; nullptr: dropped
  std::size_t landed_ = 0;
  std::uint64_t received_ = 0;
  const char* fault_ = nullptr;
};

}  // namespace ofl
