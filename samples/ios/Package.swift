// swift-tools-version:5.7
import PackageDescription

let package = Package(
  name: "Digits",
  platforms: [.iOS(.v13), .macOS(.v11)],
  products: [.library(name: "Digits", targets: ["Digits"])],
  targets: [
    .target(
      name: "CDigits",  // written by `ingot bundle`, but for module.modulemap
      exclude: ["CMakeLists.txt", "Makefile", "example.c"],
      publicHeadersPath: ".",
      cSettings: [
        .unsafeFlags(["-O3", "-fno-strict-aliasing", "-fno-math-errno", "-ffp-contract=off"])
      ]
    ),
    .target(name: "Digits", dependencies: ["CDigits"]),
    .testTarget(name: "DigitsTests", dependencies: ["Digits"]),
  ],
  cLanguageStandard: .gnu11
)
