// Frames over one non-blocking stream socket: the TCP backend's connection, and the control socket on which every
// backend negotiates.  Owns the socket; the frames are FrameReader's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "backend.hpp"
#include "frame_reader.hpp"
#include "socket.hpp"

namespace ofl {

class SocketChannel final : public Channel {
 public:
  explicit SocketChannel(UniqueFd socket) noexcept;

  static Capabilities socket_capabilities() noexcept;

  Capabilities capabilities() const noexcept override { return socket_capabilities(); }
  std::string describe() const override { return "tcp"; }
  int descriptor() const noexcept override { return socket_.get(); }
  short room_events() const noexcept override { return POLLOUT; }
  bool cheap_to_poll() const noexcept override { return false; }
  void retract(const std::byte* memory) noexcept override { reader_.retract(memory); }
  Progress send(Outgoing& frame) noexcept override;
  Progress receive(Inbox& inbox, std::size_t budget) noexcept override;
  bool readable_now() noexcept override;
  std::size_t low_water() const noexcept override { return low_water_; }
  bool mid_frame() const noexcept override { return reader_.mid_frame(); }
  std::uint64_t bytes_received() const noexcept override { return reader_.bytes_received(); }
  void shut_down() noexcept override;
  void end_sending() noexcept override;
  const char* fault() const noexcept override { return reset_ ? kResetFault : reader_.fault(); }

  // Descriptors travel beside the bytes of a Unix socket; `pass` goes with the next frame.
  void pass(std::span<const int> descriptors) noexcept { passing_ = descriptors; }
  std::span<UniqueFd> passed() noexcept { return {passed_.data(), passed_count_}; }
  // The socket goes on as another channel's control socket.
  UniqueFd take_socket() noexcept { return std::move(socket_); }

 private:
  static constexpr std::size_t kStageBytes = 16384;  // small frames arrive whole in one read
  static constexpr std::size_t kPassedMax = 4;

  ssize_t send_some(const Outgoing& frame) noexcept;
  ssize_t read_some(std::byte* to, std::size_t bytes, Progress& stopped) noexcept;
  Progress receive_some(Inbox& inbox, std::size_t budget) noexcept;
  void set_low_water() noexcept;
  ssize_t receive_bytes(std::byte* to, std::size_t bytes) noexcept;
  void take_passed(msghdr& message) noexcept;

  UniqueFd socket_;
  const bool unix_;  // a Unix socket: descriptors may come along
  std::span<const int> passing_;
  std::array<UniqueFd, kPassedMax> passed_;
  std::size_t passed_count_ = 0;
  std::array<std::byte, kStageBytes> stage_{};
  FrameReader reader_;
  std::size_t low_water_ = 1;  // as the kernel knows it
  bool reset_ = false;
};

}  // namespace ofl
