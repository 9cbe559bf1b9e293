plugins {
  id("com.android.application")
  id("org.jetbrains.kotlin.android")
}

android {
  namespace = "dev.ingot.sample"
  compileSdk = 35

  defaultConfig {
    applicationId = "dev.ingot.sample"
    minSdk = 24
    targetSdk = 35
    versionCode = 1
    versionName = "1.0"
    ndk { abiFilters += listOf("arm64-v8a", "armeabi-v7a", "x86_64") }
  }

  externalNativeBuild { cmake { path = file("src/main/cpp/CMakeLists.txt") } }

  androidResources { noCompress += "ingot" } // so that modules are mapped

  compileOptions {
    sourceCompatibility = JavaVersion.VERSION_17
    targetCompatibility = JavaVersion.VERSION_17
  }

  kotlinOptions { jvmTarget = "17" }

  buildTypes {
    release {
      isMinifyEnabled = true
      proguardFiles(getDefaultProguardFile("proguard-android-optimize.txt"), "proguard-rules.pro")
    }
  }
}
