export { useChat } from 'react-sdk-5';
export { DefaultChatTransport } from 'ai5';
