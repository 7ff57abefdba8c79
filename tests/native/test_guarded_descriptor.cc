// What happens to our files when the program closes their descriptors, or forks.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "folder.h"
#include "trace/guarded_descriptor.h"
#include "trace/replacement_sink.h"
#include "trace/sink.h"
#include "trace/source.h"

namespace gpumemtrace {
namespace {

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) != -1; }

// As a program does that closes what it doesn't know, and then opens a file of its own.
int take_the_number_of(int descriptor, const std::string& path) {
  ::close(descriptor);
  const int opened = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (opened == descriptor) return opened;
  REQUIRE(::dup2(opened, descriptor) == descriptor);
  ::close(opened);
  return descriptor;
}

}  // namespace

TEST_CASE("a file that somebody cuts short gets no hole") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  FileSink sink(path, false);
  CHECK(sink.write("one", 3));
  REQUIRE(::truncate(path.c_str(), 3) == 0);
  CHECK(sink.write("two", 3));
  REQUIRE(::truncate(path.c_str(), 5) == 0);
  CHECK_FALSE(sink.write("three", 5));
  CHECK(sink.error_number() == GuardedDescriptor::kCutShort);
  struct stat status {};
  CHECK(::stat(path.c_str(), &status) == 0);
  CHECK(status.st_size == 5);
}

TEST_CASE("a file of the program's that got the number is neither written nor closed") {
  const Folder folder;
  const std::string theirs = folder / "theirs";
  {
    FileSink sink(folder / "a.gmt", false);
    CHECK(sink.write("one", 3));
    const int number = take_the_number_of(sink.descriptor(), theirs);
    CHECK_FALSE(sink.write("two", 3));
    CHECK(sink.error_number() == EBADF);
    CHECK_FALSE(sink.close());
    CHECK(is_open(number));
    ::close(number);
  }
  {
    FileSink old(folder / "b.gmt", false);
    ReplacementSink sink(old.descriptor());
    const int number = take_the_number_of(sink.descriptor(), theirs);
    CHECK_FALSE(sink.write("two", 3));
    CHECK_FALSE(sink.publish());
    CHECK(is_open(number));
    ::close(number);
  }
  int number = -1;
  {
    FileSource source(folder / "a.gmt");
    number = take_the_number_of(source.descriptor(), theirs);
    CHECK_THROWS_AS(source.refresh(), std::system_error);
  }
  CHECK(is_open(number));
  ::close(number);
  CHECK(content(theirs).empty());
  CHECK(content(folder / "a.gmt") == "one");
  CHECK(content(folder / "b.gmt").empty());
}

TEST_CASE("a child closes what is kept from it, and no file of the program's") {
  const Folder folder;
  const FileSink kept(folder / "kept.gmt", false, true);
  const FileSink other(folder / "other.gmt", false);
  FileSink lost(folder / "lost.gmt", false, true);
  const int number = take_the_number_of(lost.descriptor(), folder / "theirs");
  { const FileSink gone(folder / "gone.gmt", false, true); }
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close_guarded_in_child();
    const bool right =
        !is_open(kept.descriptor()) && is_open(other.descriptor()) && is_open(number);
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(is_open(kept.descriptor()));
  ::close(number);
}

}  // namespace gpumemtrace
